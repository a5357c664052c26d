// A declaration that stands in for a CUDA header, of which libtorch's only mention this: nothing is defined or called.
#pragma once
typedef enum { CUSOLVER_STATUS_SUCCESS = 0 } cusolverStatus_t;
