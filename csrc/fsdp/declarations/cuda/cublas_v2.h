// A declaration that stands in for a CUDA header, of which libtorch's only mention this: nothing is defined or called.
#pragma once
typedef struct cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
